"""What `stepfold demo` needs: a small project with a failing test, and a small model's recorded replies."""
