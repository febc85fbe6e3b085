"""The command line: click commands, one file a group."""
