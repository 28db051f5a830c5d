// The style sheet of report.html: light and dark mode, down to the width of a phone. html_report.cc and chart.cc use
// its class names.
#pragma once

namespace fulldeck::report {

inline constexpr char kPageStyle[] = R"css(
:root{--page:#f6f6f3;--card:#fff;--ink:#1b1c1a;--soft:#62645f;--line:#e3e3dd;--track:#ecece7;--bad:#a8321f;--badbg:#fdf1e7;--badline:#f0cfa8;--good:#1a7f4b;
--c1:#2468c9;--c2:#7a4fc0;--c3:#12805c;--c4:#b3600c;--t1:#2468c9;--t2:#e09b16;--t3:#1f9d78;--t4:#a9aaa4;--t1i:#fff;--t2i:#2a1d00;--t3i:#fff;--t4i:#1b1c1a}
@media(prefers-color-scheme:dark){:root{--page:#131413;--card:#1c1d1c;--ink:#ecece8;--soft:#a0a29b;--line:#323431;--track:#2b2d2a;--bad:#f2a07f;--badbg:#2a2018;--badline:#59402a;--good:#58c48c;
--c1:#6fa8ff;--c2:#b596f5;--c3:#4fc79c;--c4:#eda14f;--t1:#5b97f0;--t2:#e3a73a;--t3:#3fb28b;--t4:#70726c;--t1i:#0b1526;--t2i:#241900;--t3i:#04190f;--t4i:#fff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1080px;margin:0 auto;padding:40px 20px 64px}
h1{font-size:30px;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 14px;letter-spacing:-.005em}
h3{font-size:14px;font-weight:600;margin:0 0 8px;overflow-wrap:anywhere}
.outcome{margin:6px 0 0;color:var(--soft);font-size:17px;overflow-wrap:anywhere}
section{margin-top:44px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:26px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 18px}
.tile b{display:block;font-size:27px;line-height:1.2;font-weight:650;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:14px}
.tile.main{background:var(--ink);border-color:var(--ink)}.tile.main b{color:var(--page)}.tile.main span{color:var(--page);opacity:.75}
.warnings{background:var(--badbg);border:1px solid var(--badline);border-radius:10px;padding:16px 20px;margin-top:24px}
.warnings h2{font-size:16px;margin:0 0 6px;color:var(--bad)}.warnings ul{margin:0;padding-left:20px;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:14px 24px;margin:30px 0 0}
dl .long{grid-column:span 2}
dt{color:var(--soft);font-size:13px}dd{margin:1px 0 0;overflow-wrap:anywhere}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px}
.curves figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 14px 8px}
.curves figcaption{display:flex;justify-content:space-between;gap:12px;margin:0 4px 8px;flex-wrap:wrap}
.curves figcaption span{color:var(--soft);font-size:13px;font-variant-numeric:tabular-nums}
.curves figcaption i{display:inline-block;width:16px;height:2px;vertical-align:middle;margin:0 5px 0 6px;background:var(--c1)}.curves figcaption i.faint{opacity:.35}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--line);fill:none}.axis{stroke:var(--soft);fill:none}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.line.raw{stroke-width:1.2;opacity:.35}
.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}.line.c4{stroke:var(--c4)}
.dot{stroke:var(--card);stroke-width:1.5}.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}.dot.c4{fill:var(--c4)}
.bad{color:var(--bad);font-size:13px;margin:6px 4px}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:6px 18px 10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:15px}
th,td{padding:7px 0 7px 16px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;padding-left:0;font-weight:500}
tbody tr:last-child th,tbody tr:last-child td{border-bottom:0}
thead th{color:var(--soft);font-size:13px;font-weight:500}thead th[colspan]{text-align:left}
td.bar{width:36%;min-width:110px}td.bar span{display:block;height:10px;border-radius:5px;background:var(--track);overflow:hidden}td.bar i{display:block;height:100%;border-radius:5px;background:var(--c1)}
tr.mean th,tr.mean td{font-weight:650}tr.mean td.bar i{background:var(--ink)}
.swatch{display:inline-block;width:14px;height:14px;border-radius:3px;vertical-align:-2px;margin-right:8px;box-shadow:inset 0 0 0 1px rgba(128,128,128,.55)}
.legend{display:flex;flex-wrap:wrap;gap:6px 20px;margin:0 0 14px;font-size:14px}
.examples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:20px}
.examples.small{grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}
article{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px}
.triple{display:grid;grid-template-columns:repeat(auto-fit,minmax(88px,1fr));gap:8px}
.triple figure{margin:0}.triple figcaption{color:var(--soft);font-size:13px;text-align:center;margin-top:3px}
.triple img{display:block;width:100%;height:auto;border-radius:4px;image-rendering:pixelated;box-shadow:0 0 0 1px var(--line)}
.verdict{margin:10px 0 0;font-size:14px;overflow-wrap:anywhere}.verdict span{color:var(--soft)}.right{color:var(--good)}.wrong{color:var(--bad)}
.times td.stack{width:60%;min-width:230px}.times thead th:nth-child(2){text-align:left}
.stack div{display:flex;height:22px;border-radius:4px;overflow:hidden;gap:1px}
.stack i{font-style:normal;font-size:12px;line-height:22px;text-align:center;overflow:hidden}
.t1{background:var(--t1);color:var(--t1i)}.t2{background:var(--t2);color:var(--t2i)}.t3{background:var(--t3);color:var(--t3i)}.t4{background:var(--t4);color:var(--t4i)}
.hollow{border:1.5px dashed var(--soft);border-radius:4px}
.times small{color:var(--soft);font-size:13px;margin-left:8px;font-weight:400}
.verified{list-style:none;margin:0;padding:0;display:grid;gap:10px}
.verified li{padding-left:28px;position:relative}.verified li::before{content:"✓";position:absolute;left:4px;color:var(--good);font-weight:700}
.verified b{font-weight:550}.verified span{display:block;color:var(--soft);font-size:14px;overflow-wrap:anywhere}
@media(max-width:560px){main{padding:24px 14px 48px}h1{font-size:25px}section{margin-top:34px}.tiles{grid-template-columns:1fr 1fr}.tile{padding:11px 14px}.tile b{font-size:22px}.tile.main{grid-column:1/-1}dl{grid-template-columns:1fr 1fr;gap:12px}.wide{padding:4px 12px 8px}svg text{font-size:14px}.times td.stack{min-width:150px}th,td{padding-left:12px}}
@media print{body{background:#fff}section,article,figure{break-inside:avoid}}
)css";

}  // namespace fulldeck::report
