"""What the commands do: functions of files, which the command line calls."""
