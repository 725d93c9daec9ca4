"""One folder for each tab of the page, with all that it alone needs."""
