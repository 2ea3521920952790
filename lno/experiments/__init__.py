"""What the paper and this project show, one file each."""
