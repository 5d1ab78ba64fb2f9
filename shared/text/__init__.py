"""Text in and out: tokenizer, chat template, tool-call syntax, turns."""
