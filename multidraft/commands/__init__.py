"""The commands of ``python -m multidraft``, one file each: ``add`` declares the arguments, ``run`` executes it."""
