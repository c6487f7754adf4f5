"""What a worker does with the jobs that it claims."""
