/** What the console uses of Preact and htm. */
type Changed<T> = T | ((old: T) => T);
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(node: unknown, parent: Element): void;
export function useState<T>(initial: T): [T, (next: Changed<T>) => void];
export function useEffect(effect: () => void | (() => void), keys?: unknown[]): void;
export function useMemo<T>(make: () => T, keys: unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useErrorBoundary(): [any, () => void];
