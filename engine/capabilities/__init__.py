"""What a model may do: manifests, the lifecycle of a call, native tools, policy, sandbox."""
