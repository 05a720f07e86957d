"""The command line: it parses, calls and presents. No rule of the domain lives here."""
