"""The process-group backend `smddp`: importing `trainshed_runtime.smddp.registration` makes torch know it."""
