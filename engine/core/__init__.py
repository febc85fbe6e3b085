"""The pure core: states, tables, guards, the machine, and the decision."""
