"""One model of everything outside: files, directories that are watched, sockets, signals, the calendar."""
