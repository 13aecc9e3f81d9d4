"""Its parts."""
