import type { ModelProvider } from './gateway.ts';

/** What the gateway knows of one provider. A protocol that is null is not spoken to that provider yet. */
export interface ProviderFacts {
  /** Its name in the price data. */
  readonly priceId: string;
  /** The path of its Responses API below the base URL, and the version that belongs before it. */
  readonly responses: { readonly version: string; readonly path: string } | null;
}

export const providers: Readonly<Record<ModelProvider, ProviderFacts>> = {
  openai: { priceId: 'openai', responses: { version: 'v1', path: 'responses' } },
  anthropic: { priceId: 'anthropic', responses: null },
  google: { priceId: 'google', responses: null },
  xai: { priceId: 'x-ai', responses: null },
  mistral: { priceId: 'mistral', responses: null },
  deepseek: { priceId: 'deepseek', responses: null },
};

/** True where the gateway can carry a harness's Responses requests to the provider. */
export const speaksResponses = (provider: ModelProvider): boolean => providers[provider].responses !== null;

/**
 * Where Responses requests for a provider go, or null where it is not spoken to. The base URL may be given with or
 * without the version, for both are in use: the version is added only when no part of the path is one, so that a relay
 * such as `https://relay.example/v1/account/openai` stays as it was written.
 */
export function responsesUrl(provider: ModelProvider, baseUrl: string): string | null {
  const route = providers[provider].responses;
  if (route === null) return null;
  const url = new URL(baseUrl);
  const base = url.pathname.replace(/\/+$/, '');
  const versioned = /\/v\d+[a-z0-9]*(?:\/|$)/.test(base);
  url.pathname = versioned ? `${base}/${route.path}` : `${base}/${route.version}/${route.path}`;
  return url.href;
}
