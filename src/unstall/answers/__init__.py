"""Public questions and their results: reports and answers that show, save and print themselves."""
