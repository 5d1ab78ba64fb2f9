"""Questions with known answers: asking them, grading what comes, and the record of it."""
