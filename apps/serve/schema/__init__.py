"""What clients may send, as pydantic models."""
