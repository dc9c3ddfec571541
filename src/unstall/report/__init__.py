"""Report → terminal, HTML, JSON, Markdown, GitHub annotations: one file a renderer, none of which works anything out."""
