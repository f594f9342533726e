import type { ModelProvider } from './gateway.ts';
import { providers } from './providers.ts';

/** Tokens as the meter counts them: input includes what was read from and written to the provider's cache. */
export interface PricedUsage {
  readonly inputTokens: number;
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly outputTokens: number;
}

/**
 * What a request cost in millionths of a US dollar, rounded up; null where the price data does not know the model.
 * A request that used no tokens cost nothing, whatever its model. The data is 2 MB and takes 40 ms to load, so it is
 * loaded at the first request and not at the server's start.
 */
export async function costMicros(provider: ModelProvider, model: string, usage: PricedUsage): Promise<number | null> {
  if (usage.inputTokens === 0 && usage.outputTokens === 0) return 0;
  const { calcPrice } = await import('@pydantic/genai-prices');
  const price = calcPrice(
    {
      input_tokens: usage.inputTokens,
      cache_read_tokens: usage.cachedInputTokens,
      cache_write_tokens: usage.cacheWriteTokens,
      output_tokens: usage.outputTokens,
    },
    model,
    { providerId: providers[provider].priceId },
  );
  if (price === null) return null;
  // Binary fractions make 2800.0000000000005 of an exact 2800: rounding up must not add a whole unit for that.
  return Math.ceil(Number((price.total_price * 1_000_000).toFixed(6)));
}
