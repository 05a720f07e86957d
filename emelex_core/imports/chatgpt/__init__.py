"""ChatGPT's data export: its files, and the content of its messages."""
