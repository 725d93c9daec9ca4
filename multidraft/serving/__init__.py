"""The same runs for programs: the Gradio API and MCP."""
