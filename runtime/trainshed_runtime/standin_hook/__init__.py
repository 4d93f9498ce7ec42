"""A folder for PYTHONPATH: its sitecustomize turns the stand-in shim on in every Python process of a job."""
