"""What users need to test their own tools, prompts and guards."""
