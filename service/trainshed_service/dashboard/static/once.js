// Sends the one-time link's form at once. Where scripts do not run, its button does the same.
document.getElementById("once").submit();
