"""Ground floor: errors, requests, canvas. Imports nothing but numpy."""
