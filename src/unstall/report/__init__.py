"""Report → terminal, HTML, JSON, Markdown, GitHub annotations: one file a renderer, and none works anything out."""
