"""`ds4 steer`: directions for steering, found and tried."""
