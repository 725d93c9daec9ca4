"""The commands of ``python -m multidraft``, a file each: ``add`` its arguments, run it."""
