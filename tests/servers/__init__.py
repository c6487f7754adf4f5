"""Real servers as private processes, for tests and benchmarks: own folder, free ports, gone with us."""
