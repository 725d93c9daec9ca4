"""What several tabs share: tokens, charts, tables, controls, theme."""
