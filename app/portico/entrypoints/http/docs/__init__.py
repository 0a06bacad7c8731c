"""API description for people: an example of every operation, and the page that shows them."""
