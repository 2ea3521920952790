"""The commands of `lno`, one file each: options, files in and out, and what is printed."""
