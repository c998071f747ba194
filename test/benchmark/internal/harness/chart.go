// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"

	"gonum.org/v1/plot/vg/vgsvg"
)

// The layout of charts uses the widths of fontFamily, which is often not installed. The similar fonts
// have the same widths, except for the last one.
const (
	fontFamily = "font-family:Liberation Sans"
	// FontFamilies is the style of the texts in a chart.
	FontFamilies = fontFamily + ",Arial,Helvetica,sans-serif"
)

// EncodeSVG returns a chart with texts that do not depend on the installed fonts.
func EncodeSVG(canvas *vgsvg.Canvas) []byte {
	var out bytes.Buffer
	// Writing to a buffer cannot fail.
	_, _ = canvas.WriteTo(&out)
	return bytes.ReplaceAll(out.Bytes(), []byte(fontFamily+";"), []byte(FontFamilies+";"))
}
