"""`python -m circus_bench` is the command `circus-bench`, for launchers that take a module."""

from circus_bench.cli import main

if __name__ == "__main__":
    main()
