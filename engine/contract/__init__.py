"""The strict action: the envelope, the schemas of the eight tools, and the repair."""
