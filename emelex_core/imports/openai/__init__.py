"""OpenAI: chat JSON, the Agents SDK's session store, and the items that both are made of."""
