"""What the readers of all agents share: the loop over lines, turns, parts, media, and who speaks."""
