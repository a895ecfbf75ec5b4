"""Eight real tools for the demo's agent. They change a small world of their own, so every run starts the same."""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

_SKIES = ("sunny", "cloudy", "rainy", "foggy")
_PER_EURO = {"EUR": 1.0, "USD": 1.09, "GBP": 0.85, "CHF": 0.95, "JPY": 171.0, "SEK": 11.2, "CAD": 1.48, "AUD": 1.64}
_PRICES = (4.5, 12.0, 19.9, 35.0, 49.0)
_NOW_MINUTES = 14 * 60  # the demo's clock stands still


class Desk:
    """A calendar, a to-do list, a cart and a flat, and tools that read and write them.

    Attributes:
        tools: tool name -> function of the call's arguments.
    """

    def __init__(self) -> None:
        self.tools: Mapping[str, Callable[..., dict[str, Any]]] = {
            "get_weather": self._get_weather,
            "convert_currency": self._convert_currency,
            "set_timer": self._set_timer,
            "create_event": self._create_event,
            "set_light": self._set_light,
            "set_thermostat": self._set_thermostat,
            "add_task": self._add_task,
            "add_to_cart": self._add_to_cart,
        }
        self._events: list[tuple[str, str, str | None]] = []
        self._tasks: list[tuple[str, str | None]] = [("water the plants", None), ("pay the rent", None)]
        self._cart: list[tuple[str, int]] = []
        self._rooms: dict[str, dict[str, Any]] = {}

    def call(self, name: str, arguments: str) -> str:
        """Runs one call as the model wrote it; what is wrong with it becomes the result, as in any agent."""
        if name not in self.tools:
            return json.dumps({"error": f"there is no tool {name!r}"})
        try:
            result = self.tools[name](**json.loads(arguments))
        except (TypeError, ValueError, LookupError) as error:
            result = {"error": str(error)}
        return json.dumps(result, ensure_ascii=False, separators=(",", ":"))

    def _get_weather(self, city: str, unit: str = "celsius") -> dict[str, Any]:
        number = zlib.crc32(city.lower().encode())
        celsius = 2 + number % 30
        degrees = celsius if unit == "celsius" else round(celsius * 9 / 5 + 32)
        return {"temperature": degrees, "sky": _SKIES[number // 30 % len(_SKIES)]}

    def _convert_currency(self, amount: float, **pair: str) -> dict[str, Any]:
        rate = _PER_EURO[pair["to"]] / _PER_EURO[pair["from"]]
        return {"result": round(amount * rate, 1)}

    def _set_timer(self, minutes: int, label: str = "") -> dict[str, Any]:
        end = _NOW_MINUTES + minutes
        return {"ends": f"{end // 60 % 24:02}:{end % 60:02}"}

    def _create_event(self, title: str, date: str, time: str | None = None) -> dict[str, Any]:
        self._events.append((title, date, time))
        return {"id": f"A{1000 + len(self._events)}", "status": "created"}

    def _set_light(self, room: str, on: bool) -> dict[str, Any]:
        self._rooms.setdefault(room, {})["light"] = on
        return {"status": "ok", "room": room}

    def _set_thermostat(self, room: str, temperature: float) -> dict[str, Any]:
        self._rooms.setdefault(room, {})["target"] = temperature
        return {"target": temperature, "room": room}

    def _add_task(self, task: str, priority: str | None = None) -> dict[str, Any]:
        self._tasks.append((task, priority))
        return {"id": 10 + len(self._tasks), "open": len(self._tasks)}

    def _add_to_cart(self, product: str, quantity: int = 1) -> dict[str, Any]:
        self._cart.append((product, quantity))
        total = sum(_PRICES[zlib.crc32(name.encode()) % len(_PRICES)] * number for name, number in self._cart)
        return {"items": sum(number for _, number in self._cart), "total": round(total, 2)}
