"""llama.cpp engine, in this process."""
