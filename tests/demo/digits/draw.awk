# Draws some of the images side by side, and says below each which digit was written and what the
# network thinks. Its files: labels.txt, and the floats of images and scores as text, an image a
# line. Variables: shown (the images' numbers, from 1), colours (empty: none).
#
# An image is 16 columns wide and 8 lines high. In colours, a half-block holds two pixels, which are
# interpolated from the 8 x 8 of the image. Without colours, a pixel is two equal characters.

FILENAME != file { file = FILENAME; files++ }
files == 1 { label[FNR] = $1 }
files == 2 { for (i = 1; i <= 64; i++) pixel[FNR, i - 1] = $i }
files == 3 { for (i = 1; i <= 10; i++) score[FNR, i - 1] = $i }

function at(image, y, x)
{
    return y < 0 || y > 7 || x < 0 || x > 7 ? 0 : pixel[image, 8 * y + x]
}

# Returns the grey of 256 colours at a place of 16 x 16. The next pixel weighs three quarters.
function grey(image, y, x,    top, left, low, right, above, below)
{
    top = int((y + 1) / 2) - 1
    left = int((x + 1) / 2) - 1
    low = y % 2 ? 0.25 : 0.75
    right = x % 2 ? 0.25 : 0.75
    above = at(image, top, left) * (1 - right) + at(image, top, left + 1) * right
    below = at(image, top + 1, left) * (1 - right) + at(image, top + 1, left + 1) * right
    return 232 + int((above * (1 - low) + below * low) * 23 / 16 + 0.5)
}

# Returns the digit with the highest score, apart from `other`.
function best(image, other,    digit, found)
{
    found = other == 0 ? 1 : 0
    for (digit = 0; digit < 10; digit++)
        if (digit != other && score[image, digit] > score[image, found])
            found = digit
    return found
}

function draw(image, y,    x, text)
{
    for (x = 0; x < 16; x++)
        if (colours != "")
            text = text sprintf("\033[38;5;%d;48;5;%dm▀", grey(image, 2 * y, x),
                                grey(image, 2 * y + 1, x))
        else
            text = text substr(" .:-=+*#%@", 1 + int(at(image, y, int(x / 2)) * 9 / 16), 1)
    return colours != "" ? text "\033[0m" : text
}

function say(image, line,    first, second)
{
    first = best(image, -1)
    second = best(image, first)
    if (line == 0)
        return "written: " label[image]
    if (line == 1)
        return sprintf("read: %d  %5.1f %%", first, 100 * score[image, first])
    if (score[image, second] == 0)
        return ""
    return sprintf("      %d  %5.1f %%", second, 100 * score[image, second])
}

END {
    n = split(shown, images, " ")
    for (y = 0; y < 8; y++) {
        row = "   "
        for (i = 1; i <= n; i++)
            row = row " " draw(images[i], y) " "
        sub(/ +$/, "", row)
        print row
    }
    for (line = 0; line < 3; line++) {
        row = "   "
        for (i = 1; i <= n; i++)
            row = row sprintf(" %-16s ", say(images[i], line))
        sub(/ +$/, "", row)
        print row
    }
    for (i = 1; i in label; i++)
        right += best(i, -1) == label[i]
    printf "    held-out: %d of %d right", right, i - 1
}
