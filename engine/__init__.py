"""The engine: the pure core, the contract, capabilities, models, the runtime and its front ends."""
