# Makes the numbers of one operator's requests and answers, for requests.sh. All numbers are exact
# as doubles. The expected ones are computed from the operator's definition, without a server.
#
#   kind      "dequantize" or "quantize" (with count), or "conv" (with channels, height, width)
#   form      "json" writes numbers with commas, "binary" hexadecimal digits
#   variants  the number of answers; scale[V] is 1/2, 1/4, ..., and zero_point[V] is 128, 120, ...
#   folder    gets the files x, for a convolution w, and y.V

function random(below) {
    seed = seed * 16807 % 2147483647
    return seed % below
}

function little_endian(bits, bytes,    text) {
    for (; bytes > 0; bytes--) {
        text = text sprintf("%02X", bits % 256)
        bits = int(bits / 256)
    }
    return text
}

function fp32(value,    sign, exponent) {
    if (value == 0)
        return little_endian(0, 4)
    sign = value < 0
    if (sign)
        value = -value
    for (exponent = 127; value >= 2; exponent++)
        value /= 2
    for (; value < 1; exponent--)
        value *= 2
    return little_endian(sign * 2147483648 + (exponent + value - 1) * 8388608, 4)
}

function byte(value) {
    return form == "json" ? value "" : little_endian(value < 0 ? value + 256 : value, 1)
}

function dequantize(    i, v, value, y) {
    for (value = 0; value < 256; value++) {
        for (v = 0; v < variants; v++) {
            y = (value - zero_point[v]) * scale[v]
            text[v * 256 + value] = form == "json" ? sprintf("%.10g", y) : fp32(y)
        }
    }
    for (i = 0; i < count; i++) {
        value = random(256)
        printf "%s%s", i == 0 ? "" : comma, bytes[value] >x_file
        for (v = 0; v < variants; v++)
            printf "%s%s", i == 0 ? "" : comma, text[v * 256 + value] >y_file[v]
    }
}

# x is in sixteenths, so that quotients are eighths and include ties.
function quantize(    i, v, value, y) {
    for (value = 0; value < 2048; value++) {
        x_text[value] = form == "json" ? sprintf("%.10g", (value - 1024) / 16) \
                                       : fp32((value - 1024) / 16)
        for (v = 0; v < variants; v++) {
            y = eighth((value - 1024) * 2 ^ v) + zero_point[v]
            text[v * 2048 + value] = bytes[y < 0 ? 0 : y > 255 ? 255 : y]
        }
    }
    for (i = 0; i < count; i++) {
        value = random(2048)
        printf "%s%s", i == 0 ? "" : comma, x_text[value] >x_file
        for (v = 0; v < variants; v++)
            printf "%s%s", i == 0 ? "" : comma, text[v * 2048 + value] >y_file[v]
    }
}

# At most four weights of each filter are not zero. This makes the sums cheap here, but not in the
# server.
function make_filters(    i, m, tap, place) {
    for (m = 0; m < channels; m++) {
        for (tap = 0; tap < 4; tap++) {
            place = random(channels * 9)
            weight[m * channels * 9 + place] = random(2) + 1
            if (random(2))
                weight[m * channels * 9 + place] *= -1
        }
        for (i = tap = 0; i < channels * 9; i++)
            if ((m * channels * 9 + i) in weight)
                taps[m, tap++] = i
        tap_count[m] = tap
    }
    for (i = 0; i < channels * channels * 9; i++)
        printf "%s%s", i == 0 ? "" : comma, byte(i in weight ? weight[i] : 0) >w_file
}

# Returns filter m's sum at (row, column). The image is padded by one.
function sum_at(m, row, column,    tap, place, channel, y, x, sum) {
    for (tap = 0; tap < tap_count[m]; tap++) {
        place = taps[m, tap]
        channel = int(place / 9)
        y = row + int(place % 9 / 3) - 1
        x = column + place % 3 - 1
        if (y >= 0 && y < height && x >= 0 && x < width)
            sum += weight[m * channels * 9 + place] * image[(channel * height + y) * width + x]
    }
    return sum + 0
}

# Rounds `sum` eighths to the nearest integer, ties to even.
function eighth(sum,    quotient, rest) {
    quotient = int((sum + 8192) / 8)
    rest = sum + 8192 - 8 * quotient
    if (rest > 4 || (rest == 4 && quotient % 2 == 1))
        quotient++
    return quotient - 1024
}

function convolve(    i, m, row, column, v, y, quotient) {
    make_filters()
    for (i = 0; i < channels * height * width; i++) {
        image[i] = random(256) - 128
        printf "%s%s", i == 0 ? "" : comma, bytes[image[i] + 128] >x_file
    }
    i = 0
    for (m = 0; m < channels; m++) {
        for (row = 0; row < height; row++) {
            for (column = 0; column < width; column++) {
                quotient = eighth(sum_at(m, row, column))
                for (v = 0; v < variants; v++) {
                    y = quotient + zero_point[v]
                    y = y < 0 ? 0 : y > 255 ? 255 : y
                    printf "%s%s", i == 0 ? "" : comma, bytes[y] >y_file[v]
                }
                i++
            }
        }
    }
}

BEGIN {
    seed = 4711
    comma = form == "json" ? "," : ""
    x_file = folder "/x"
    w_file = folder "/w"
    for (v = 0; v < variants; v++) {
        scale[v] = 1 / 2 ^ (v + 1)
        zero_point[v] = 128 - 8 * v
        y_file[v] = folder "/y." v
    }
    for (i = 0; i < 256; i++)
        bytes[i] = byte(i)
    if (kind == "conv")
        convolve()
    else if (kind == "quantize")
        quantize()
    else
        dequantize()
}
