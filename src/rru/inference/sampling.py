"""What sampling of text and of music have in common."""

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0  # beyond, sampling is practically greedy or uniform


def check_temperature(temperature: float) -> None:
    """Raise ValueError if the temperature is out of range."""
    if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise ValueError(f"temperature must be from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, got {temperature}")
