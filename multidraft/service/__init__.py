"""Runs, races, batches and replays as jobs on one device; knows neither Gradio nor HTML."""
