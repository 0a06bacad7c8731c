// @ts-check
/** Long lists of which only the visible part is elements. */
import { html, useEffect, useRef, useState } from "../vendor/preact.js";

/**
 * Rows of one height, of which only the visible ones and ten around them are elements.
 * @param {{count: number, height: number, row: (at: number) => any, label?: string, head?: any}} props
 */
export function Rows({ count, height, row }) {
  const ref = useRef(/** @type {any} */ (null));
  const [range, setRange] = useState([0, 40]);
  useEffect(() => {
    const measure = () => {
      const box = ref.current?.getBoundingClientRect();
      if (!box) return;
      const first = Math.max(0, Math.floor(-box.top / height) - 10);
      const last = Math.ceil((innerHeight - box.top) / height) + 10;
      setRange((old) => (old[0] === first && old[1] === last ? old : [first, last]));
    };
    measure();
    addEventListener("scroll", measure, { capture: true, passive: true });
    addEventListener("resize", measure);
    const timer = setInterval(measure, 1000);
    return () => {
      removeEventListener("scroll", measure, { capture: true });
      removeEventListener("resize", measure);
      clearInterval(timer);
    };
  }, [count, height]);
  const first = Math.min(range[0], Math.max(0, count - 1));
  const shown = Array.from({ length: Math.max(0, Math.min(range[1], count) - first) }, (_, n) =>
    row(first + n),
  );
  return html`
    <div
      class="rows"
      ref=${ref}
      style=${{ height: `${count * height}px`, paddingTop: `${first * height}px` }}>
      ${shown}
    </div>
  `;
}
