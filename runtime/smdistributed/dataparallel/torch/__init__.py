"""For PyTorch: `torch_smddp` registers the backend; `distributed` and `parallel` are the names of the first version."""
