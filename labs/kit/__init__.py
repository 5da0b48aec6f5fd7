"""What labs/lab and labs/prove are made of."""
