"""The programs: one module or package per `ds4` subcommand, over `shared` and one backend."""
