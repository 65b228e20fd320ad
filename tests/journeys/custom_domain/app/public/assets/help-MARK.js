export const help = 'Help of edition MARK'
