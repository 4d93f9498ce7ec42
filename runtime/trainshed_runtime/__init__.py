"""What runs inside the user's process. Importing this package imports nothing else, torch included."""
