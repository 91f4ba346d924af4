"""`Pricing`: what a model costs, as its user says or as the price list of `genai-prices` has it; unknown is ``None``.

The list is an optional extra (``turnstile-agent[prices]``), a copy that comes with the package: nothing is fetched. To
read it takes half a second, more than to import all the rest, so it is read when a price is first asked for, or in a
thread while the first reply is waited for. What is at another address than a public provider's, such as a server of
one's own, has no price there.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from turnstile.core.limits import Price
from turnstile.core.messages import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

_MILLION = 1_000_000
_FAULTS = (ImportError, LookupError, ValueError, ArithmeticError)  # no list, not in it, counts that contradict


class Pricing:
    """The price of one model.

    Args:
        given: What the user says it costs; goes before the list.
        model: The model, as its server names it.
        base_url: The server's address.
    """

    def __init__(self, given: Price | None, model: str, base_url: str) -> None:
        self._given = given
        self._model = model
        self._base_url = base_url if base_url.startswith("https://") else ""
        self._begun = bool(given) or not self._base_url

    def prepare(self) -> None:
        """Begin to read the list, in a thread of the running event loop's, so that it is there when a reply comes."""
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().run_in_executor(None, _listed, self._model, self._base_url)

    @property
    def price(self) -> Price | None:
        """What a million tokens cost, at the dearest step where the price has steps."""
        return self._given or (_listed(self._model, self._base_url) if self._base_url else None)

    def cost(self, usage: Usage | None, *, cache_written: int = 0) -> float | None:
        """US dollars that a reply cost by the list, what was read from the cache and written to it at its own price.

        Args:
            usage: Its tokens.
            cache_written: Those of the request that were written to the provider's cache.
        """
        if self._given or self.price is None or usage is None or None in {usage.input_tokens, usage.output_tokens}:
            return None
        try:
            found = _calculated(
                self._model,
                self._base_url,
                input_tokens=usage.input_tokens or 0,
                output_tokens=usage.output_tokens or 0,
                cache_read_tokens=usage.cached_tokens or 0,
                cache_write_tokens=cache_written,
            )
        except _FAULTS:
            return None
        return float(found.total_price)


@cache
def _listed(model: str, base_url: str) -> Price | None:
    try:
        found = _calculated(model, base_url, input_tokens=_MILLION, output_tokens=_MILLION)
        return Price(float(found.input_price), float(found.output_price))
    except _FAULTS:
        return None


def _calculated(model: str, base_url: str, **tokens: int) -> PriceCalculation:
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    return calc_price(Tokens(**tokens), model, provider_api_url=base_url)
