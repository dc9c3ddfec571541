"""What a user asks, and what they hold then: reports and answers that show, save and print themselves."""
